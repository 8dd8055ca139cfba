#!/bin/sh
# Run once by the postgres image on an empty data folder: the role that the application has. It owns nothing;
# `manage.py migrate`, as the owner, grants it what it needs, and what it cannot do is rewrite history.
set -eu
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --set password="$APPLICATION_PASSWORD" <<'SQL'
CREATE ROLE durableops_app LOGIN PASSWORD :'password';
SQL
