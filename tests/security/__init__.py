"""What hostile callers, pages and bytes get: nothing that is not theirs, and no more of the server than others do."""
