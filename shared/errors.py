"""Every error that Forescore raises on purpose.

::

    ForescoreError
    ├── SettingsError            a setting or an option that cannot be
    ├── PartEnded                one of the processes of `forescore up` ended by itself
    ├── SchemaError              a schema that cannot be
    ├── BundleError              a bundle that cannot be built or trusted
    │   ├── BundleNotFound
    │   ├── BundleCorrupt        a digest, a path or a forbidden content
    │   ├── BundleConflict       the same name and version with another digest
    │   └── NotCertified         golden rows do not hold on this host
    ├── ScoringError             the forward pass
    │   ├── WrongShape           it returned another number of rows or outputs than it was given
    │   ├── DeviceUnavailable
    │   └── EngineUnavailable    the compiled engine, on a host that cannot have it
    ├── SourceError              an input table
    │   ├── TableNotFound
    │   ├── ColumnMissing
    │   ├── ColumnRefused        of a type that cannot be an id, an order or a feature
    │   └── SourceDown           a database of features that does not answer, or not as asked
    ├── RunError                 a run of the batch job
    │   ├── DuplicateIds
    │   ├── TooManyRejected
    │   ├── RunLocked            another process works in the same folder
    │   └── AccountingBroken     input != scored + rejected + duplicate
    ├── StoreError               Redis or Valkey
    │   ├── StoreDown            refused, timed out, loading, gone
    │   ├── StoreRefused         it answered with an error: out of memory, read-only, no permission
    │   └── StoreCorrupt         bytes that are not what was written
    ├── SnapshotError
    │   ├── SnapshotNotFound
    │   ├── SnapshotHeld         a gate held it back
    │   ├── SnapshotNotReady     half-written, or retired
    │   ├── SnapshotFileCorrupt  its file on this disk is not there, or not what was written
    │   ├── MixedVersions        scores of two models would be in one snapshot
    │   ├── LeaseHeld            somebody else is publishing
    │   └── Fenced               the lease was lost before the pointer could be flipped
    └── RequestError             a call to the service
        ├── BadRequest
        ├── InvalidEntityId
        ├── RowRejected
        ├── UnknownEntity
        ├── FeaturesNotKept
        ├── Unauthorized
        ├── Forbidden            a key that may not do this
        ├── TooManyRequests
        ├── RequestTooSlow
        ├── HeadTooLarge
        ├── EncodedBody          compressed, or coded in another way
        ├── BodyTooLarge
        ├── TooManyItems
        ├── NotCached
        ├── Overloaded
        ├── ScoreUnavailable     known or perhaps known, and no way to its score just now
        ├── NotReady
        └── DeadlineExceeded

Each class carries its HTTP status, problem type and exit code. A message names the thing, the rule and the next step.
It has no feature value and no secret."""

from typing import ClassVar

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_HELD = 3


class ForescoreError(Exception):
    """The root: catching it catches every error raised here on purpose, and nothing else."""

    status: ClassVar[int] = 500
    problem: ClassVar[str] = "internal-error"
    title: ClassVar[str] = "Internal error"
    exit_code: ClassVar[int] = EXIT_FAILED


class SettingsError(ForescoreError):
    """A setting or an option that cannot be."""

    exit_code = EXIT_USAGE


class PartEnded(ForescoreError):
    """One of the processes that `forescore up` runs together ended by itself."""


class SchemaError(ForescoreError):
    """A schema that cannot be: a name twice, a rule that contradicts another."""


class BundleError(ForescoreError):
    """A bundle that cannot be built or trusted."""


class BundleNotFound(BundleError):
    """No bundle lies at that path."""

    exit_code = EXIT_USAGE


class BundleCorrupt(BundleError):
    """A file of the bundle is missing, changed, or of a kind that is never loaded."""


class BundleConflict(BundleError):
    """The same name and version exist with another digest."""


class NotCertified(BundleError):
    """The golden rows do not hold on this host, so its scores could not be trusted."""


class ScoringError(ForescoreError):
    """The forward pass failed."""


class WrongShape(ScoringError):
    """The model returned another number of rows or outputs than the schema says."""


class DeviceUnavailable(ScoringError):
    """The device that was asked for is not there."""

    exit_code = EXIT_USAGE


class EngineUnavailable(ScoringError):
    """The compiled engine was asked for, and this host has no compiled graph and cannot make one."""


class SourceError(ForescoreError):
    """An input table that cannot be read."""

    exit_code = EXIT_USAGE


class TableNotFound(SourceError):
    """No table lies at that path."""


class ColumnMissing(SourceError):
    """The table lacks a column that the schema or an option names."""


class ColumnRefused(SourceError):
    """A column of a type that cannot serve as what it is asked to be."""


class SourceDown(SourceError):
    """A database of features did not answer, or not as asked: refused, timed out, gone."""

    exit_code = EXIT_FAILED


class RunError(ForescoreError):
    """A run of the batch job that cannot go on."""


class DuplicateIds(RunError):
    """One entity has several rows, and nothing says which of them counts."""


class TooManyRejected(RunError):
    """More rows were rejected than the limit allows, so nothing is published."""


class RunLocked(RunError):
    """Another process works in the same run folder."""


class AccountingBroken(RunError):
    """The rows do not add up: input = scored + rejected + duplicate."""


class StoreError(ForescoreError):
    """Redis or Valkey could not do what was asked."""

    status = 503
    problem = "store-unavailable"
    title = "The store is not available"


class StoreDown(StoreError):
    """The store did not answer: refused, timed out, loading, gone."""


class StoreRefused(StoreError):
    """The store answered with an error: out of memory, read-only, no permission."""


class StoreCorrupt(StoreError):
    """The store holds bytes that Forescore did not write."""


class SnapshotError(ForescoreError):
    """A snapshot that cannot be used as asked."""

    status = 409
    problem = "snapshot-unusable"
    title = "The snapshot cannot be used"


class SnapshotNotFound(SnapshotError, LookupError):
    """No snapshot of that id is known."""

    status = 404
    problem = "snapshot-not-found"
    title = "No such snapshot"


class SnapshotHeld(SnapshotError):
    """A gate holds the snapshot back; the old one stays active."""

    exit_code = EXIT_HELD


class SnapshotNotReady(SnapshotError):
    """The snapshot is half-written or retired."""


class SnapshotFileCorrupt(SnapshotError):
    """The file of a snapshot is not there, or does not hold what was written."""


class MixedVersions(SnapshotError):
    """Scores of two model versions, bundles or kinds of host would be in one snapshot."""


class LeaseHeld(SnapshotError):
    """Somebody else holds the publishing lease: ``holder`` says who."""

    def __init__(self, message: str, *, holder: str = "") -> None:
        super().__init__(message)
        self.holder = holder


class Fenced(SnapshotError):
    """The lease passed to somebody else before the pointer could be flipped."""


class RequestError(ForescoreError):
    """A call to the service that cannot be answered as asked."""

    status = 400
    problem = "bad-request"
    title = "Bad request"


class BadRequest(RequestError):
    """The request is not what the API describes."""


class InvalidEntityId(RequestError):
    """The text cannot be an entity id."""

    status = 422
    problem = "invalid-entity-id"
    title = "Invalid entity id"


class RowRejected(RequestError):
    """The features break a rule of the schema: ``code`` names the rule, ``field`` the feature to blame, if one is."""

    status = 422
    problem = "row-rejected"
    title = "The features break a rule of the schema"

    def __init__(self, message: str, *, code: str, field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.field = field


class UnknownEntity(RequestError, LookupError):
    """There is neither a score nor features for that entity."""

    status = 404
    problem = "unknown-entity"
    title = "Unknown entity"


class FeaturesNotKept(RequestError):
    """This service reads no features from the store, so keeping them there would be in vain."""

    status = 409
    problem = "features-not-kept"
    title = "Features are not kept here"


class Unauthorized(RequestError):
    """The key is missing or wrong."""

    status = 401
    problem = "unauthorized"
    title = "A valid key is required"


class Forbidden(RequestError):
    """The key is known, and its scopes do not allow this."""

    status = 403
    problem = "forbidden"
    title = "The key does not allow this"


class TooManyRequests(RequestError):
    """More rows than a rate limit allows. ``retry_after``: None if so many never are."""

    status = 429
    problem = "too-many-requests"
    title = "Too many rows in too short a time"

    def __init__(self, message: str, *, retry_after: float | None, policy: str, state: str, reason: str) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.policy = policy
        self.state = state
        self.reason = reason


class RequestTooSlow(RequestError):
    """The head or the body of a request was not there in time."""

    status = 408
    problem = "request-too-slow"
    title = "The request came too slowly"


class HeadTooLarge(RequestError):
    """The head of a request, its path and headers, has more bytes than the limit."""

    status = 431
    problem = "head-too-large"
    title = "The head of the request is too large"


class EncodedBody(RequestError):
    """The body is compressed, and this service unpacks nothing."""

    status = 415
    problem = "encoded-body"
    title = "The body is encoded"


class BodyTooLarge(RequestError):
    """The body has more bytes than the limit."""

    status = 413
    problem = "body-too-large"
    title = "The body is too large"


class TooManyItems(RequestError):
    """The body has more items than the limit."""

    status = 413
    problem = "too-many-items"
    title = "Too many items"


class NotCached(RequestError):
    """The request forbids scoring, and the cache has no score as it wants it."""

    status = 504
    problem = "not-cached"
    title = "Not in the cache"


class Overloaded(RequestError):
    """More work is waiting than can be done in time. ``retry_after``: in how many seconds there should be room."""

    status = 503
    problem = "overloaded"
    title = "Overloaded"

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ScoreUnavailable(RequestError):
    """The score cannot be had just now: the store is down and there are no features to score from."""

    status = 503
    problem = "score-unavailable"
    title = "The score is not available just now"


class NotReady(RequestError):
    """This process has not yet scored its golden rows, or could not."""

    status = 503
    problem = "not-ready"
    title = "Not ready"


class DeadlineExceeded(RequestError):
    """The answer was not there in time."""

    status = 504
    problem = "deadline-exceeded"
    title = "Deadline exceeded"
