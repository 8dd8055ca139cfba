"""What retention may remove, said in the database: policies, what holds a thing, the only functions that remove.

The application's role cannot delete history. It may ask these functions, which run as the owner of the tables, look at
policy and holders themselves, and remove what both allow, with its record, or nothing.
"""
