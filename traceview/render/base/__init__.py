"""Parts shared by all outputs: safe text, columns, tables, colours, pages from templates."""
