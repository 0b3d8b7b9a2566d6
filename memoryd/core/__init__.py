"""What is decided: pure functions over values, without any input or output."""
