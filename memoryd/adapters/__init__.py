"""The outside, one adapter per port; foreign errors are translated here, once."""
