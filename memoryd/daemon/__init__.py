"""The shell around the core: the server, its handlers, the sessions, the saver.

Importing this package costs nothing: each module is imported where it is needed.
"""
