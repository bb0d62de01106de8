"""Backup, restoring, and the removal of what nothing needs any more."""
