"""An app with one workflow that a test can watch, hold and let go."""
