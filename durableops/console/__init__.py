"""The pages: look up, check, call one function, answer. Verbs live in the engine, rights in `access`."""
