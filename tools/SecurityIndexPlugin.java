import java.util.Map;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.core.KeywordTokenizer;
import org.elasticsearch.index.analysis.TokenFilterFactory;
import org.elasticsearch.index.analysis.TokenizerFactory;
import org.elasticsearch.indices.analysis.AnalysisModule.AnalysisProvider;
import org.elasticsearch.plugins.AnalysisPlugin;
import org.elasticsearch.plugins.Plugin;

/** Stands in for the analysis module: its names must be known before the index of API keys can be made. */
public final class SecurityIndexPlugin extends Plugin implements AnalysisPlugin {
    @Override
    public Map<String, AnalysisProvider<TokenFilterFactory>> getTokenFilters() {
        return Map.of("pattern_capture", unchanged(), "unique", unchanged());
    }

    @Override
    public Map<String, AnalysisProvider<TokenizerFactory>> getTokenizers() {
        return Map.of("uax_url_email",
                (index, environment, name, settings) -> TokenizerFactory.newFactory(name, KeywordTokenizer::new));
    }

    private static AnalysisProvider<TokenFilterFactory> unchanged() {
        return (index, environment, name, settings) -> new TokenFilterFactory() {
            @Override
            public String name() {
                return name;
            }

            @Override
            public TokenStream create(final TokenStream tokens) {
                return tokens;
            }
        };
    }
}
