# moved: fit() and Fit live in bayes_irsl/fitting.py (a submodule named fit would shadow bi.fit). Use bi.fit / bi.Fit / bi.load. This note file will be deleted; never import it.
