"""gradsync-audit: published numbers of scaling studies in, what is wrong in them out."""
