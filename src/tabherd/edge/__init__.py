"""The edge: protocols at the front door. It decodes, authenticates and answers; decisions are the broker's."""
