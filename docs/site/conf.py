"""Sphinx: the documentation site. `make site` writes the sources and builds it."""

project = "traceview"
author = "the traceview authors"
extensions = ["myst_parser"]
myst_enable_extensions = ["html_image"]
myst_heading_anchors = 4
# The pages show these languages: plain text where Pygments has no lexer.
highlight_language = "none"
# --option stays as it is typed.
smartquotes = False
html_theme = "furo"
html_title = "traceview"
html_static_path = ["_static"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
# It would be empty: the reference pages declare no index entries.
html_use_index = False
html_theme_options = {"sidebar_hide_name": False}
html_css_files = ["site.css"]
