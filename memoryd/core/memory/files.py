"""Names of the files in a project's memory directory."""

MEMORY_FILE = "MEMORY.md"
BACKUP_FILE = "MEMORY.pre-migration.md"
FAILED_REPLY_FILE = "memory-save.failed-reply.txt"
