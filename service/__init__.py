"""The service: answers from the active snapshot, and scores online what the batch has never seen."""
