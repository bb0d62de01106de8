"""Thin handlers: read the request, ask the store or an artefact, shape the answer."""
