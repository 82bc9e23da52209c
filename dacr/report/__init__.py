"""All pages, charts and terminal views."""
