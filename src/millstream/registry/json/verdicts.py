"""The kinds of changes to a JSON schema: which keep old data valid, and what the others mean.

The names are those of Confluent's registry where it has one. A change that can't be decided has a name that
ends in ``NOT_CHECKED``, and is refused: to call it compatible would be a guess.
"""

from __future__ import annotations

# Every other change makes some valid document invalid, or can't be shown not to.
_COMPATIBLE = """
    ID_CHANGED DESCRIPTION_CHANGED TITLE_CHANGED DEFAULT_CHANGED SCHEMA_REMOVED TYPE_EXTENDED
    MAX_LENGTH_INCREASED MAX_LENGTH_REMOVED MIN_LENGTH_DECREASED MIN_LENGTH_REMOVED PATTERN_REMOVED
    MAXIMUM_INCREASED MAXIMUM_REMOVED MINIMUM_DECREASED MINIMUM_REMOVED
    EXCLUSIVE_MAXIMUM_INCREASED EXCLUSIVE_MAXIMUM_REMOVED
    EXCLUSIVE_MINIMUM_DECREASED EXCLUSIVE_MINIMUM_REMOVED MULTIPLE_OF_REDUCED MULTIPLE_OF_REMOVED
    REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED REQUIRED_ATTRIBUTE_REMOVED
    DEPENDENCY_ARRAY_NARROWED DEPENDENCY_ARRAY_REMOVED DEPENDENCY_SCHEMA_REMOVED
    MAX_PROPERTIES_INCREASED MAX_PROPERTIES_REMOVED MIN_PROPERTIES_DECREASED MIN_PROPERTIES_REMOVED
    ADDITIONAL_PROPERTIES_ADDED ADDITIONAL_PROPERTIES_EXTENDED
    UNEVALUATED_PROPERTIES_ADDED UNEVALUATED_PROPERTIES_EXTENDED
    PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL
    REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL
    OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL
    PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL
    PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    MAX_ITEMS_INCREASED MAX_ITEMS_REMOVED MIN_ITEMS_DECREASED MIN_ITEMS_REMOVED
    MAX_CONTAINS_INCREASED MAX_CONTAINS_REMOVED MIN_CONTAINS_DECREASED MIN_CONTAINS_REMOVED
    UNIQUE_ITEMS_REMOVED ADDITIONAL_ITEMS_ADDED ADDITIONAL_ITEMS_EXTENDED
    UNEVALUATED_ITEMS_ADDED UNEVALUATED_ITEMS_EXTENDED
    ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL ITEM_ADDED_TO_CLOSED_CONTENT_MODEL
    ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL
    ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    ENUM_ARRAY_EXTENDED COMBINED_TYPE_EXTENDED PRODUCT_TYPE_NARROWED SUM_TYPE_EXTENDED NOT_TYPE_NARROWED
"""
COMPATIBLE = frozenset(_COMPATIBLE.split())

_IF_YOU_KNOW = "; if you know that it keeps older data valid, register it with the level NONE"

MEANING = {
    "TYPE_CHANGED": "its type has changed",
    "TYPE_NARROWED": "numbers with a fraction were valid before",
    "REQUIRED_ATTRIBUTE_ADDED": "it was optional before, and has no default",
    "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": "older data lacks it, or has something else there",
    "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": "older data may have something else there, as"
    ' "additionalProperties" was not false',
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL": "older data may have something else there,"
    ' as "additionalProperties" was not false',
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": "older data does not have it, and there is no default",
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": "older data may have it, and"
    ' "additionalProperties" is false',
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "what older data has there does not fit"
    " what is allowed there now",
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "older data may have values"
    " that do not fit",
    "ADDITIONAL_PROPERTIES_REMOVED": "older data may have properties that are not named",
    "ADDITIONAL_PROPERTIES_NARROWED": "older data may have any properties",
    "ENUM_ARRAY_NARROWED": "values are missing that older data may have",
    "ENUM_ARRAY_CHANGED": "values are missing that older data may have",
    "SUM_TYPE_NARROWED": "there are fewer alternatives",
    "PRODUCT_TYPE_EXTENDED": "there are more conditions",
    "COMBINED_TYPE_CHANGED": "its parts are combined in another way",
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": "its parts have changed",
    "SCHEMA_ADDED": "older data may have any elements",
    "TYPE_ADDED": "older data may be of any type, as there was no type",
    "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED": "it was optional before",
    "SUM_TYPE_OVERLAPS": "data that fits one alternative fits this one as well, and oneOf allows one only",
    "NOT_TYPE_EXTENDED": "it may exclude more than before",
    "PATTERN_PROPERTIES_ADDED": "older data may have something else under such a name",
    "PATTERN_PROPERTIES_REMOVED": "older data may have such properties, with values that do not fit"
    ' "additionalProperties"',
    "PROPERTY_NAMES_ADDED": "older data may have other names",
    "CONTAINS_ADDED": "older data may lack such an element",
    "MAX_CONTAINS_COUNTS_MORE": "elements count that did not count before",
    # The following can be shown neither to keep old data valid nor to break it.
    "CONDITION_NOT_CHECKED": f"not checked: the condition itself has changed{_IF_YOU_KNOW}",
    "OVERLAP_NOT_CHECKED": "not checked: data that fits one alternative may fit this one as well, and oneOf"
    f" allows one only{_IF_YOU_KNOW}",
    "PATTERN_NOT_CHECKED": "not checked: the pattern is not one that is matched here (RE2 has no look-around"
    f" and no back-references){_IF_YOU_KNOW}",
    "PROPERTY_NAMES_NOT_CHECKED": f"not checked: whether the names that were allowed fit{_IF_YOU_KNOW}",
    "UNEVALUATED_NOT_CHECKED": "not checked: what is evaluated depends on the schemas combined with this"
    f" one, and one of them has changed{_IF_YOU_KNOW}",
    "KEYWORD_NOT_CHECKED": "not checked: $dynamicRef, $recursiveRef and the rules of draft 3 are not"
    f" compared{_IF_YOU_KNOW}",
}
