"""The statements of a write transaction, built once: building one costs more than running it."""

from __future__ import annotations

from sqlalchemy import BindParameter, bindparam, insert, select, update

from sfumato.ledger import schema
from sfumato.ledger.entry import Kind

_dataset, _analyst, _entry = schema.dataset.c, schema.analyst.c, schema.entry.c
_answer, _retry = schema.answer.c, schema.retry.c
# parameter names that no column has: an UPDATE takes those of columns for new values
_OF_DATASET: BindParameter[str] = bindparam("of_dataset")
_OF_ANALYST: BindParameter[str] = bindparam("of_analyst")
_OF_KEY: BindParameter[str] = bindparam("of_key")
_OF_NUMBER: BindParameter[int] = bindparam("of_number")

LOCK_DATASET = select(schema.dataset).where(_dataset.name == _OF_DATASET).with_for_update()
UPDATE_DATASET = (
    update(schema.dataset)
    .where(_dataset.name == _OF_DATASET)
    .values(
        {
            name: bindparam(name)
            for name in ("epsilon", "rho", "delta", "spent_units", "spent_delta_units", "entries", "head")
        }
    )
)

LOCK_ANALYST = (
    select(schema.analyst).where(_analyst.dataset == _OF_DATASET, _analyst.name == _OF_ANALYST).with_for_update()
)
INSERT_ANALYST = insert(schema.analyst)
UPDATE_ANALYST = (
    update(schema.analyst)
    .where(_analyst.dataset == _OF_DATASET, _analyst.name == _OF_ANALYST)
    .values({column.name: bindparam(column.name) for column in _analyst if not column.primary_key})
)

FIND_RELEASE = (
    select(_entry.number, _answer.body)
    .select_from(
        schema.entry.outerjoin(schema.answer, (_answer.dataset == _entry.dataset) & (_answer.number == _entry.number))
    )
    .where(_entry.dataset == _OF_DATASET, _entry.key == _OF_KEY, _entry.kind == Kind.RELEASE.value)
)
FIND_SHOWN = (
    select(_entry.number)
    .where(_entry.dataset == _OF_DATASET, _entry.key == _OF_KEY, _entry.analyst == _OF_ANALYST)
    .limit(1)
)
INSERT_ENTRY = insert(schema.entry)

FIND_RETRY = select(_retry.key).where(
    _retry.dataset == _OF_DATASET, _retry.analyst == _OF_ANALYST, _retry.retry_key == bindparam("of_retry_key")
)
INSERT_RETRY = insert(schema.retry)

FIND_ANSWER = select(_answer.body).where(_answer.dataset == _OF_DATASET, _answer.number == _OF_NUMBER)
INSERT_ANSWER = insert(schema.answer)
