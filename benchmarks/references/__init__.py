"""The other side: small programs that do the same job as one would write it plainly, without Forescore at run time."""
