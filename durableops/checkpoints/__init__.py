"""What is written between steps and whether it can still be read; pure, knows no database.

`codec` is strict JSON, `states` turns a State into it and back, `failures` writes down errors,
`compatibility` compares what was recorded with what the code says today.
"""
