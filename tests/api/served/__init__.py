"""An app for web processes of the tests: it brings the workflow they may start."""
