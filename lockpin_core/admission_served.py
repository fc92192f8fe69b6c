"""Who answers a call and what that costs: the tariff by which it is settled. Pure; prices are of one instant."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lockpin_core.call import Terms
from lockpin_core.config import Config
from lockpin_core.errors import UnpricedError
from lockpin_core.prices import Model, PriceTable, band_start, costs_nothing, price
from lockpin_core.providers import Provider
from lockpin_core.settlement import Tariff
from lockpin_core.usage import Usage
from lockpin_core.wire.protocol import Wire


@dataclass(frozen=True, slots=True)
class Served:
    """Who answers a call and what that costs: prices of one instant."""

    prices: PriceTable
    provider: Provider
    host: str
    model: Model  # as the request names it
    at: datetime
    path: str = ""
    is_one: bool = True  # the only model that the request names

    def tariff(self, wire: Wire, config: Config, bytes_estimate: int) -> Tariff:
        """Give what settlement needs."""
        return Tariff(
            price=self._price,
            cut_rule=wire.cut_rule if self.provider.prompt_first else "hold",  # whose first event is no estimate
            max_tps=self.provider.max_tps,
            bills=self.provider.bills,
            charge_failed=config.charge_failed,
            bytes_estimate=bytes_estimate,
            band=self._band,
        )

    def _band(self, model: str, prompt: int, terms: Terms) -> int:
        """Give the band of a prompt of a model that `_price` has named."""
        found = self.model if model == self.model.id else self.prices.find(self.provider.name, model, self.at)
        return 0 if found is None else band_start(found, prompt, terms, self.at)

    def _price(self, served: str | None, usage: Usage, terms: Terms) -> tuple[int, str] | None:
        """Price usage with the model that the reply states when it is priced, else with the request's.

        One that costs nothing, and is the only one that was asked for, costs nothing whatever its reply calls it: names
        of free variants are not always in replies as they were asked for.
        """
        if self.is_one and costs_nothing(self.model):
            served = None
        found = self.prices.find(self.provider.name, served, self.at) if served else None
        if found is None and not self.is_one:
            return None
        model = self.model if found is None or self.model.id.endswith(f".{found.id}") else found  # it names no place
        geo = self.provider.geo_of(self.host, self.path)
        try:
            return price(model, usage, terms, self.at, host_geo=geo), model.id
        except UnpricedError:
            return None
