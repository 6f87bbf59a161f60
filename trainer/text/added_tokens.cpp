#include "trainer/text/added_tokens.h"

#include <algorithm>

#include "submit/options/utf8.h"
#include "trainer/text/unicode.h"

namespace trainer {
namespace {

/// Its last character: where it begins, and what it is; 0 where it is not UTF-8.
std::pair<std::size_t, char32_t> last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < 4 &&
         (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) {
    --at;
  }
  return {at, dtrain::decode_utf8(text.substr(at)).code};
}

/// A byte of a token's, -1 behind its end.
int byte_of(const AddedToken& token, std::size_t at) {
  return at < token.content.size() ? static_cast<unsigned char>(token.content[at]) : -1;
}

} // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  for (const AddedToken& token : tokens_) {
    starts_[static_cast<unsigned char>(token.content.front())] = true;
  }
  has_one_start_ = std::count(starts_.begin(), starts_.end(), true) == 1;
}

std::size_t AddedTokens::next_start(std::string_view text, std::size_t from) const {
  if (tokens_.empty()) {
    return std::string_view::npos;
  }
  if (has_one_start_) { // As that of all special ones, which memchr() finds.
    return text.find(tokens_.front().content.front(), from);
  }
  while (from < text.size() && !starts_[static_cast<unsigned char>(text[from])]) {
    ++from;
  }
  return from < text.size() ? from : std::string_view::npos;
}

const AddedToken* AddedTokens::longest_at_start_of(std::string_view text) const {
  const AddedToken* longest = nullptr;
  auto first = tokens_.begin();
  auto last = tokens_.end();
  for (std::size_t at = 0; at < text.size() && first != last; ++at) {
    const int byte = static_cast<unsigned char>(text[at]);
    first = std::lower_bound(first, last, byte, [at](const AddedToken& token, int wanted) {
      return byte_of(token, at) < wanted;
    });
    last = std::upper_bound(first, last, byte, [at](int wanted, const AddedToken& token) {
      return wanted < byte_of(token, at);
    });
    if (first != last && first->content.size() == at + 1) {
      longest = &*first;
    }
  }
  return longest;
}

AddedTokens::Match AddedTokens::find(std::string_view text, std::size_t from) const {
  for (std::size_t at = from; (at = next_start(text, at)) != std::string_view::npos; ++at) {
    if (const AddedToken* token = longest_at_start_of(text.substr(at))) {
      return {at, at + token->content.size(), token};
    }
  }
  return {};
}

bool AddedTokens::is_word_of_its_own(std::string_view text, const Match& match) {
  const std::string_view before = text.substr(0, match.begin);
  const std::string_view after = text.substr(match.end);
  return (before.empty() || !unicode::is_word(last_character(before).second)) &&
         (after.empty() || !unicode::is_word(dtrain::decode_utf8(after).code));
}

std::size_t AddedTokens::begin_of(std::string_view text, const Match& match, std::size_t given) {
  std::size_t begin = match.begin;
  while (match.token->lstrip && begin > given) {
    const auto [at, character] = last_character(text.substr(0, begin));
    if (!unicode::is_white_space(character)) {
      break;
    }
    begin = at;
  }
  // What an earlier match has taken is not given twice.
  return match.token->lstrip ? std::max(begin, given) : begin;
}

std::size_t AddedTokens::end_of(std::string_view text, const Match& match) {
  std::size_t end = match.end;
  while (match.token->rstrip && end < text.size()) {
    const dtrain::Utf8Char next = dtrain::decode_utf8(text.substr(end));
    if (!unicode::is_white_space(next.code)) {
      break;
    }
    end += next.length;
  }
  return end;
}

} // namespace trainer
