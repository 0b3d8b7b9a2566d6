"""What `memoryctl demo` needs besides the real parts: nothing else of memoryd imports it."""
