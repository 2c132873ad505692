"""The batch job: a table becomes parts, parts become a snapshot, a verified snapshot becomes the active one."""
