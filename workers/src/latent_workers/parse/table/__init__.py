"""Tables of values: the sheets of workbooks, and CSV files."""
