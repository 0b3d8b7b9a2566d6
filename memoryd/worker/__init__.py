"""The process that may import `anthropic`: `python -m memoryd.worker`, started on demand."""
