"""An app whose runs share a process: plain and async steps, stuck ones, and some that ask to be alone."""
