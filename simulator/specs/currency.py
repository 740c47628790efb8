"""Currencies by their ISO 4217 codes. Nothing is converted: rates change daily, so all money of a plan is in one."""

from __future__ import annotations

from simulator.errors import ProfileError, did_you_mean

# Active codes of ISO 4217, without funds, metals and test codes.
_LISTED = (
    "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF "
    "CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD "
    "HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL "
    "LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP "
    "PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT "
    "TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG"
)
CODES = frozenset(_LISTED.split())


def known_currency(code: str) -> str:
    """The code itself.

    Raises
    ------
    ValueError
        Not a currency of ISO 4217; names the nearest.
    """
    if code not in CODES:
        near = code.upper() if code.upper() in CODES else ""
        hint = f"did you mean {near}?" if near else did_you_mean(code, CODES)
        raise ValueError(f"an ISO 4217 currency code such as USD or EUR is needed ({hint})")
    return code


def same_currency(first: str, second: str, *, first_name: str, second_name: str) -> None:
    """Refuse to add amounts of two currencies.

    Raises
    ------
    ProfileError
        They differ.
    """
    if first != second:
        raise ProfileError(
            f"{first_name} is in {first}, {second_name} in {second}; amounts of different currencies are never added",
            field="currency",
            code="mixed_currencies",
            hint=f"write both in {first}: --ownership FILE with extends: default, currency: {first} and its money",
        )
