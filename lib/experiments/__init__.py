"""One module per chapter: typed settings in, typed result out, no plotting."""
