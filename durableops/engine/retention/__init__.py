"""What people decide about data: rules, legal holds, erasures; each with its audit entry. Upkeep cleans."""
