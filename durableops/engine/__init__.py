"""What moves runs: start, bell, claim, advance, commit, resume, lease, events, and the verbs of operators."""
