"""Which names a cell of a notebook takes from the cells above it, and which it sets or changes."""

from __future__ import annotations

import ast
from typing import Any


class Names(ast.NodeVisitor):
    """Names that a cell takes from cells above it, and those that it sets or changes."""

    def __init__(self, source: str) -> None:
        self.takes: set[str] = set()
        self.sets: set[str] = set()
        self.changes: set[str] = set()
        self.visit(ast.parse(source))

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.takes |= {node.id} - self.sets
        else:
            self.sets.add(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        for part in filter(None, (node.value, node.target)):
            self.visit(part)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._change(node.target)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        for part in (node.iter, node.target, *node.body, *node.orelse):
            self.visit(part)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.ctx, ast.Store):
            self._change(node)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Store):
            self._change(node)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
            self._change(node.value.func)  # rows.append(…)
        self.generic_visit(node)

    def visit_alias(self, node: ast.alias) -> None:
        self.sets.add((node.asname or node.name).partition(".")[0])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for part in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(part)
        self.sets.add(node.name)
        a = node.args
        own = {arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if arg}
        self._inside(node.body, own)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        a = node.args
        for part in (*a.defaults, *filter(None, a.kw_defaults)):
            self.visit(part)
        self._inside([node.body], {arg.arg for arg in (*a.args, *a.kwonlyargs, a.vararg, a.kwarg) if arg})

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases):
            self.visit(part)
        self.sets.add(node.name)
        self._inside(node.body, set())

    def generic_visit(self, node: ast.AST) -> None:
        """Visit what belongs to a node; names of a comprehension stay inside it."""
        if not hasattr(node, "generators"):
            super().generic_visit(node)
            return
        before = set(self.sets)
        for generator in node.generators:
            for part in (generator.iter, generator.target, *generator.ifs):
                self.visit(part)
        for part in ("elt", "key", "value"):
            if hasattr(node, part):
                self.visit(getattr(node, part))
        self.sets = before

    def _inside(self, body: list[Any], own: set[str]) -> None:
        """Visit a body with names of its own: what it assigns anywhere is its own too."""
        walked = (node for part in body for node in ast.walk(part) if isinstance(node, ast.Name))
        stored = {node.id for node in walked if isinstance(node.ctx, ast.Store)}
        before, self.sets = set(self.sets), self.sets | own | stored
        changes = set(self.changes)
        for part in body:
            self.visit(part)
        self.sets, self.changes = before, changes

    def _change(self, node: ast.AST) -> None:
        while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
            node = node.func if isinstance(node, ast.Call) else node.value
        if isinstance(node, ast.Name):
            self.changes.add(node.id)
