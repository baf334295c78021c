"""Code that JAX traces, followed equation by equation over its jaxpr."""

from audit.diagnosis.explain.jaxprs.replay import follow

__all__ = ["follow"]
