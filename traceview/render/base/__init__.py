"""What all outputs share: safe text, columns, tables, colours, pages from templates."""
