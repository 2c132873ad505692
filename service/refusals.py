"""What to say of an entity or of a row that has no score: one place for the words."""

from service.answers import instant
from service.lookup import Outcome, RejectedInBatch, Stale, StoreDown
from shared.codes import Rejection
from shared.errors import NotCached, RequestError, RowRejected, ScoreUnavailable, UnknownEntity


def without_features(one: Outcome, *, unsure: bool) -> RequestError:
    """An entity that the snapshot has no score for that may be told, and that no source has features of."""
    match one:
        case RejectedInBatch():
            return rejected_in_batch(one)
        case StoreDown():
            return ScoreUnavailable("the store cannot tell just now whether this entity has a score; try again")
        case Stale():
            return ScoreUnavailable(
                "the score is older than FORESCORE_SERVICE__MAX_AGE_SECONDS allows, and there are no features for a "
                "new one; run the backfill"
            )
        case _ if unsure:
            return ScoreUnavailable("this entity has no score, and a source of its features fails just now; try again")
        case _:
            return UnknownEntity(
                "no score and no features of this entity; give them by PUT /features/{entity_id} where this service "
                "keeps features, in another of its sources, or in the table of the next batch"
            )


def rejected_in_batch(one: RejectedInBatch) -> RowRejected:
    """The batch's reason, and when it was found."""
    return RowRejected(
        f"{_blame(one.code.text, one.field)}, found by the batch job at {instant(one.scored_at)}; correct it there",
        code=one.code.text,
        field=one.field,
    )


def rejected_online(one: Rejection) -> RowRejected:
    """The encoder's or the model's reason, without the value."""
    return RowRejected(
        f"{_blame(one.code.text, one.field)}; GET /model lists the rules", code=one.code.text, field=one.field
    )


def unscored(one: Outcome) -> RequestError:
    """An entity whose score will not do, while nothing may be scored."""
    return rejected_in_batch(one) if isinstance(one, RejectedInBatch) else not_cached()


def not_cached() -> NotCached:
    """The caller wanted nothing but the cache's."""
    return NotCached(
        "no score in the cache as the request's Cache-Control wants it, and only-if-cached forbids another"
    )


def _blame(code: str, field: str | None) -> str:
    return f"feature {field}: {code}" if field is not None else code
