"""A customer as a plain request gives it: what FastAPI, LitServe and BentoML check, by one pydantic model."""

from pydantic import BaseModel


class Customer(BaseModel):
    tenure: float
    monthly_charges: float
    total_charges: float | None
    female: bool
    senior_citizen: bool
    partner: bool
    dependents: bool
    phone_service: bool
    paperless_billing: bool
    multiple_lines: str | None
    internet_service: str | None
    online_security: str | None
    online_backup: str | None
    device_protection: str | None
    tech_support: str | None
    streaming_tv: str | None
    streaming_movies: str | None
    contract: str | None
    payment_method: str | None
