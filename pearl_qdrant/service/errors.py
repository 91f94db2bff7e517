"""Errors of the service, each with its HTTP status and a code that programs can read."""

from __future__ import annotations

from pearl_qdrant.errors import PearlQdrantError


class ServiceError(PearlQdrantError):
    """A request that the service does not answer.

    Attributes:
        status: HTTP status.
        code: What happened, in one word for programs.
        facts: Further fields of the answer, such as the name of a limit.
        retry_after_s: After how many seconds it may be sent again; None: never.
    """

    status = 500
    code = "internal"

    def __init_subclass__(cls, *, status: int, code: str) -> None:
        cls.status, cls.code = status, code

    def __init__(self, message: str, *, retry_after_s: float | None = None, **facts: str | int | float) -> None:
        super().__init__(message)
        self.facts = facts
        self.retry_after_s = retry_after_s


_LARGEST = 2**53
"""Larger numbers are not exact in JSON."""


class LimitError(ServiceError, status=422, code="over_limit"):
    """Something in a request is over a limit.

    Args:
        limit: Name of the limit, a field of `ServiceSettings`.
        found: What the request has; numbers over 2**53 are shown as that.
        where: The field of the body, as in ``mentions``.
    """

    def __init__(self, limit: str, *, allowed: int, found: int, where: str) -> None:
        found = min(found, _LARGEST)
        super().__init__(
            f"{where} is over the limit {limit}: {found:,}, allowed are {allowed:,}. Send less in one request.",
            limit=limit,
            allowed=allowed,
            found=found,
            where=where,
        )


class BodyTooLargeError(ServiceError, status=413, code="body_too_large"):
    """The body has more bytes than allowed."""

    def __init__(self, allowed: int) -> None:
        super().__init__(
            f"The body is over the limit max_body_bytes: allowed are {allowed:,} bytes. Send less in one request.",
            limit="max_body_bytes",
            allowed=allowed,
        )


class InvalidRequestError(ServiceError, status=422, code="invalid"):
    """A field has a value that does not fit."""


class NoCollectionNamedError(ServiceError, status=422, code="collection_missing"):
    """Several collections are served, and the request names none."""


class UnauthorizedError(ServiceError, status=401, code="unauthorized"):
    """No valid key."""


class WritingNotAllowedError(ServiceError, status=403, code="writing_not_allowed"):
    """The service was started without writing."""


class QueueFullError(ServiceError, status=429, code="busy"):
    """More is waiting than allowed."""


class TimedOutError(ServiceError, status=504, code="timed_out"):
    """No answer in the time that a request has."""


class NotReadyError(ServiceError, status=503, code="not_ready"):
    """What is asked for is being made, or the service stops."""


class ClientGoneError(ServiceError, status=499, code="client_gone"):  # as nginx has it
    """The client hung up before its turn came; nobody gets this answer."""


class HostNotAllowedError(ServiceError, status=421, code="host_not_allowed"):
    """The service does not answer for this host."""


class SlowBodyError(TimedOutError, status=408, code="slow_body"):
    """The body of a request did not arrive in time."""
