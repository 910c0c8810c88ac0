"""What uvicorn answers before there is a request to hand on: a problem, as everywhere else."""

from __future__ import annotations

from uvicorn.protocols.http.h11_impl import H11Protocol

from api.problems import ProblemError, problem_response


class ProblemProtocol(H11Protocol):
    """HTTP/1.1 by h11, whose refusal of bytes that are no request is text by default."""

    def send_400_response(self, msg: str) -> None:
        problem = ProblemError(400, "bad-request", "The request cannot be read", f"{msg} Send HTTP/1.1")
        answer = problem_response(problem, path="*")
        head = [(b"connection", b"close"), *answer.raw_headers]
        lines = [b"HTTP/1.1 400 Bad Request", *(name + b": " + value for name, value in head), b"", bytes(answer.body)]
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()
