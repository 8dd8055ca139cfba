"""What authors declare: workflows, steps, tools, states, policies; how they run is not known here.

Pure Python and pydantic: nothing in this package imports Django, RQ, Redis or a database, so a
workflow can be imported and tested anywhere. The engine reads the frozen definitions from
`registry` and provides the `run` and `call` objects that `context` describes.
"""
