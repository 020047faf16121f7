// Shows a sentence instead of an empty page in a browser that lacks what the page needs.

// biome-ignore lint/complexity/useOptionalChain: an old browser could not parse it
if (!window.DecompressionStream || !HTMLScriptElement.supports || !HTMLScriptElement.supports("importmap")) {
  document.getElementById("unsupported").hidden = false;
}
