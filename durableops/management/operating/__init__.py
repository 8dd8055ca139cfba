"""What `manage.py operate` can do, a module for each kind of thing it is done to."""
