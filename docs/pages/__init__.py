"""A module for each page of docs/reference that is made from the code.

Owns the prose that stands beside what the code says. Reads modules that `memoryctl` may import, and looks
at the source of the others: a page needs neither the event loop nor the SDK.
"""
