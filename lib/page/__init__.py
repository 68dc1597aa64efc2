"""What a page of the book shows, and the checks behind it; no mathematics.

``evidence``, ``records``, ``expectations``, ``claims``   a claim's number beside its bound and its broken control
``ledger``, ``seed_tables``   all claims on one page, also at other seeds; a figure of these
``figures``   figures with the numbers behind them, tables
``movies``, ``sliders``   films to scrub through, figures with a slider
``parameters``, ``results``, ``notebooks``   parameters, stored numbers, execution
``explore``   controls for a reader in JupyterLab
``editions``, ``printing``   the built book as a zip and as a PDF
"""
