"""The documentation and what makes its reference pages; no part of the package that is installed."""
