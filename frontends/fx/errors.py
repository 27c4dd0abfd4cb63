"""The error that the FX frontend raises for graphs it cannot take."""

_NOT_FAKE = "Please convert all Tensors to FakeTensors first"  # FakeTensorMode, about a real tensor


class FxImportError(ValueError):
    """An FX graph, callable or exported program that cannot be imported.

    The message is one line that names the node and the user's source line where they are known. The exception that
    made the import fail, if any, is the `__cause__`, so that callers can still recognise torch's own control flow
    (`torch._dynamo.exc`, `GuardOnDataDependentSymNode`) in the chain.
    """

    def __init__(self, reason: str, *, node: str | None = None, location: tuple[str, int] | None = None) -> None:
        """`reason` says what is wrong, `node` is the FX node's name, `location` the user's file and line."""
        self.reason = reason
        self.node = node
        self.location = location
        where = "" if location is None else f" ({location[0]}:{location[1]})"
        super().__init__(f"cannot import node `{node}`{where}: {reason}" if node else f"cannot import{where}: {reason}")


def error_summary(error: BaseException) -> str:
    """The first line of an exception's message, or its type if it has none."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):  # their message is the operator
        return f"{error.func} gives what depends on elements, which tracing does not know; call it outside of the graph"
    message = str(error).strip()
    if message.startswith(_NOT_FAKE):
        return "it uses a tensor that is neither an argument nor held by a traced module; pass it as an argument"
    return message.splitlines()[0] if message else type(error).__name__
